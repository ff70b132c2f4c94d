"""`attnspec`: the command, the processes in which it runs implementations, and completion in shells."""
