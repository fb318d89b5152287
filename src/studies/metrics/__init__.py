"""Which numbers describe a request, and which of them a person notices?"""
