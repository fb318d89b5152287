"""What may a Mac's GPU use, how fast are its chips, and how does MLX compare?"""
