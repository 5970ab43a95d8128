"""The program of one run: it drives one child session, obeys control requests, and writes the record."""
