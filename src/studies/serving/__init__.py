"""What does llama-server add to a request, and what do its users wait for?"""

RECORDS = {"http serving": "http_serving:HttpServing", "watched serving": "watched_server:WatchedServing"}
