# In sync mode all workers end with the same bits, whichever language they speak.
mode sync
array weights add float32 0.3 0.7 -1.1 2.2 0.1
walk weights 50
bits weights
matrix rows momentum_sgd float64 3 3
walk rows 20
bits rows
