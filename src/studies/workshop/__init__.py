"""What does a workshop ask of laptops, and what does a room do to one server?"""
