"""The revisions, oldest first. Their modules are loaded by Alembic, by their place."""
