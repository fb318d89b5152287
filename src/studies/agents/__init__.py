"""What does llama-server keep of a coding agent's requests, and when must it read everything again?"""

RECORDS = {"agent replay": "study:Replay", "slot files": "study:SlotFiles"}
