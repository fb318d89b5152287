"""When does a draft pay, and who drafts best?"""

RECORDS = {
    "acceptance": "study:Acceptance",
    "seen drafts": "trained:SeenDrafts",
    "served speculation": "study:ServedSpeculation",
    "speculation": "speculative:Speculation",
    "trained drafts": "trained:TrainedDrafts",
    "verification cost": "speculative:VerifyCost",
}
