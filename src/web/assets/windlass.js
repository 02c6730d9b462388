// Live updates and keys; without this script, every page works.
