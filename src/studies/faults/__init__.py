"""Can a slow run be told from its numbers?"""
