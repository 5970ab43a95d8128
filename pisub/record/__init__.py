"""The durable record: layout, atomic files, status, results, journal, questions. What is here is true."""
