"""What does a utilization of 100 % say?"""
