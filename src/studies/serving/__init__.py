"""What does llama-server add to a request, and what do its users wait for?"""

RECORDS = {"http serving": "study:HttpServing", "watched serving": "study:WatchedServing"}
