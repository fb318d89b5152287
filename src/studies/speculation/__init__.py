"""When does a draft pay, and who drafts best?"""

RECORDS = {
    "acceptance": "acceptance:Acceptance",
    "served speculation": "served_speculation:ServedSpeculation",
    "speculation": "speculative:Speculation",
    "verification cost": "speculative:VerifyCost",
}
