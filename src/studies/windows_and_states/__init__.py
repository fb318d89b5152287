"""What does a server keep of a conversation with windows or recurrent states?"""

RECORDS = {"kept prompts": "study:KeptPrompts"}
