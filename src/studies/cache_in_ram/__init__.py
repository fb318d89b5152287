"""What does a KV cache in the host's RAM cost a token?"""
