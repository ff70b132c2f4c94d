"""Laws of attention and positional encodings, implementations under test, and the verifier that brings them together."""
