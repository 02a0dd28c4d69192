"""The chain and what runs it: task, context, middleware, events, the check before the first step."""
