"""Files and folders: the cache of converted models, output folders, JSON, mapped pages."""
