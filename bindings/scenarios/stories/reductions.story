# Trees of the job's workers.
mode async
reduce sum 1 2.5 -3 = 0 0 0 + 1 2.5 -3
reduce mean 4 8 = 4 8 + 0 0
reduce max 7 -7 = 7 -7 + 0 0
reduce min 7 -7 = 7 -7 + 0 0
