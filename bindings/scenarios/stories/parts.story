# Reduced numbers shared out in equal parts; the first nodes take the remainder.
for rust python c lua
mode async
reduce_scatter sum 1 2 3 4 5 6 7 = 0 0 0 0 0 0 0 + 1 2 3 4 5 6 7
reduce_scatter max 1 -2 = 1 -2 + 0 0
reduce_scatter mean 8 4 2 1 = 8 4 2 1 + 0 0 0 0
