"""The host's side of a session: the queue of questions, the dialogs, the completions."""
