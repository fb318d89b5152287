"""What does a training step keep that inference does not?"""

RECORDS = {"training ledger": "study:TrainingLedger"}
