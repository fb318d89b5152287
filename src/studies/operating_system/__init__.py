"""What do cores, priorities, builds and waiting threads change?"""

RECORDS = {"waiting threads": "study:Waiting"}
