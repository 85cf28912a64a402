"""What runs gangs for real. The only package that imports the engines it runs them on, and it decides
nothing.
"""
