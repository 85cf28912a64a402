"""What travels between users and a live cluster: the job file, and the bodies of the API. Shared by the API
and its client.
"""
