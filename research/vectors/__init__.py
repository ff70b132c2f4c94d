"""How the certified vectors are made: cases chosen so that they kill the known bugs, and written for every language."""
