# A channel is open, closed, drained; a read tells which, and an empty one that is open has nothing.
for rust python c
mode async
channel news 0
read news open
write news open 1 2.5 3
read news open 1
write news open 4
close news
write news closed 5
read news closed 2.5
read news closed 3
read news closed 4
read news drained
write news drained 6
