"""Why a GPU waits: one cause and its proof, from evidence of some seconds (pure)."""
