"""Campaigns: many cases of many implementations, in chunks, by as many workers as there are, for as
long as one likes.

A **chunk** is one operation of one implementation on the cases of one seed, or a climb towards a
worst input from that seed: seconds of work (`chunks`). The **plan** is all chunks in a fixed order,
so that a campaign goes on with those that are not yet in its **store**, a database of SQLite
(`store`), which is of one campaign (`identity`). A chunk is run on a **bench**, a warm child
process of `attnspec verify`, and so by the same code: the same seed gives the same verdict, and a
death, a hang or a leak is a verdict too (`bench`). **Engines** hand chunks to benches: threads of
this process, or actors of Ray's (`engines`). The **campaign** is the loop between them
(`campaign`), `progress` shows how far it is, and **reports** read the store while it runs
(`report`). What broke a law is kept in Hypothesis' database of examples (`examples`).
"""
