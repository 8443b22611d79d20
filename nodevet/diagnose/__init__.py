"""Why a GPU waits: from evidence that was watched for a while to one cause and its proof (pure)."""
