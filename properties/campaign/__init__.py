"""Runs campaigns: verifies implementations for hours, in small pieces of work, with many workers.

A **chunk** is one operation of one implementation on the test inputs of one seed, or a search for a
worst input (a climb) from that seed; it takes seconds (`chunks`). The **plan** is the sequence of
all chunks in a fixed order. The **store** is the SQLite database of one campaign (`store`,
`identity`). A campaign that starts again runs the chunks that are not yet in its store.

A **bench** runs chunks in a warm child process of `attnspec verify` (`bench`). For this reason the
same seed gives the same verdict as there, and a crash, a hang or too much memory becomes a verdict.
An **engine** gives chunks to benches: threads of this process, or actors of Ray (`engines`).

The **campaign** is the loop between engine and store (`campaign`). `progress` shows how far it is.
A **report** reads the store, also during the campaign (`report`). Inputs on which a law fails go to
Hypothesis' database of examples (`examples`).
"""
