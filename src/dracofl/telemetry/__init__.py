"""What a run leaves behind: tables, a summary, a folder; and how to read them back."""
