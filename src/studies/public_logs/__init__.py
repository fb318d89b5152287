"""Is the log reader right on logs that other people's programs wrote?"""
