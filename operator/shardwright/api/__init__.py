"""The wire contract: the ShardedModel resource, its schema, its conditions and its status."""
