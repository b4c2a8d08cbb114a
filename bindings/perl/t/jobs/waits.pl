# A signal handler that dies ends a wait; afterwards the job goes on. A forked child is told that it is no member.
use strict;
use warnings;
use PDL;
use Syncline ();
use Syncline::KVStore;

my $folder = shift;
Syncline::init();
if (Syncline::rank() == 0) {
    local $SIG{ALRM} = sub { die "no patience\n" };
    alarm 1;
    my $lived = eval { Syncline::barrier(); 1 };
    alarm 0;
    die "the wait was not ended by the signal: $@" unless !$lived && $@ eq "no patience\n";
    open my $done, '>', "$folder/done" or die $!;
}
else { select undef, undef, undef, 0.01 until -e "$folder/done" }

my $kv = Syncline::KVStore->create('dist_sync');
$kv->init('w', zeroes(float, 3));
my $table = Syncline::ArrayTable->new(3);
my $child = fork // die $!;
if (!$child) {
    my @kinds = map { my $code = $_; eval { $code->(); 1 } ? 'lived' : $@->kind } sub { $table->get }, sub { Syncline::barrier() }, sub { $kv->pull('w') };
    exit("@kinds" eq 'ForkError ForkError ForkError' ? 0 : do { print STDERR "@kinds\n"; 1 });
}
waitpid $child, 0;
die "the forked child: $?\n" if $?;
$kv->push('w', ones(float, 3));
die 'what the others pushed' unless $kv->pull('w')->at(0) == Syncline::num_workers();
print "fine\n";
