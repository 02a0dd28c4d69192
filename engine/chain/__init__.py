"""The chain and its parts: task, context, middleware, events, and the check before the first step."""
