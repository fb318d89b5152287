"""What do fewer bits cost in fidelity, and what does an importance matrix win back?"""

RECORDS = {"matrix losses": "study:MatrixLosses"}
