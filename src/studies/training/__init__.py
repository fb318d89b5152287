"""What does a training step keep that inference does not?"""

RECORDS = {"training ledger": "training_ledger:TrainingLedger"}
