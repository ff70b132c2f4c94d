"""Campaigns: verify implementations for hours, in chunks, with many workers.

A **chunk** is one operation of one implementation on the test inputs of one seed, or a climb from
that seed towards a worst input; it takes seconds (`chunks`). The **plan** is the sequence of all
chunks in a fixed order. The **store** is the SQLite database of one campaign (`store`, `identity`);
a campaign that starts again runs the chunks that are not yet in its store. A **bench** runs chunks
in a warm child process of `attnspec verify` (`bench`). So the same seed gives the same verdict, and
a death, a hang or a leak of memory is a verdict too. An **engine** gives chunks to benches: threads
of this process, or actors of Ray (`engines`). The **campaign** is the loop between engine and store
(`campaign`), `progress` shows how far it is, and a **report** reads the store, also during the
campaign (`report`). Inputs that break a law go to Hypothesis' database of examples (`examples`).
"""
