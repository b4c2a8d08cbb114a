# Arrays and matrices, one worker's view and everybody's sum.
mode async
array weights add float32 1 2 3 4
get weights 1 2 3 4 + 0 0 0 0
barrier
add weights 1 1 1 0.5
barrier
get weights 1 2 3 4 + 1 1 1 0.5
barrier
matrix rows add float64 4 2
add_rows rows 3,1,3 1 2 10 20 1 2
barrier
get rows 0 0 0 0 0 0 0 0 + 0 0 10 20 0 0 2 4
get_rows rows 3,0 0 0 0 0 + 2 4 0 0
array counts add int64 5 6
add counts 1 -2
barrier
get counts 5 6 + 1 -2
