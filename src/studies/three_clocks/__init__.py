"""Which wait belongs to the process, which to the prompt, and which to each token?"""
