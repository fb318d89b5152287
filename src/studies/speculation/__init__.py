"""When does a draft pay, and who drafts best?"""

RECORDS = {
    "acceptance": "study:Acceptance",
    "served speculation": "study:ServedSpeculation",
    "speculation": "speculative:Speculation",
    "verification cost": "speculative:VerifyCost",
}
