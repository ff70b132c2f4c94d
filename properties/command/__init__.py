"""The command `attnspec`: its subcommands, its options, and completion in shells."""
