"""The command line: words in, the library called, text or JSON out."""
