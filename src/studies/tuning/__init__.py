"""Which setting changes a rate on one machine, and by how much?"""
