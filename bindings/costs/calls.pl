# The calls of a table and of stores from Perl, so many at a time as `measure` says: perl calls.pl 1 16 262144
use strict;
use warnings;

use AI::MXNet qw(mx);
use PDL;
use Syncline;
use Syncline::KVStore;
use Time::HiRes qw(clock_gettime CLOCK_PROCESS_CPUTIME_ID);

$| = 1;

# Says what the calls are; then, for every number that comes, makes so many and says how long one took, in microseconds of processor time.
sub play {
    my ($name, $calls) = @_;
    print "$name\n";
    while (my ($times) = (<STDIN> // '') =~ /(\d+)/) {
        my $began = clock_gettime(CLOCK_PROCESS_CPUTIME_ID);
        $calls->($times);
        printf "%.4f\n", (clock_gettime(CLOCK_PROCESS_CPUTIME_ID) - $began) / $times * 1e6;
    }
}

Syncline::init();
my %stores = map { $_ => Syncline::KVStore->create($_) } qw(local dist_async);
$stores{dist_async}->set_optimizer('test');
my $mxnet = mx->kv->create;
for my $size (@ARGV) {
    my ($delta, $out) = (ones(float, $size), zeroes(float, $size));
    my $table = Syncline::ArrayTable->new($size);
    play("table add $size", sub { $table->add($delta) for 1 .. $_[0] });
    play("table get $size", sub { $table->get(out => $out) for 1 .. $_[0] });
    play("table get new $size", sub { $table->get for 1 .. $_[0] });
    my ($gradient, $weights) = (mx->nd->ones([$size]), mx->nd->zeros([$size]));
    for my $kind (sort keys %stores) {
        my $kv = $stores{$kind};
        $kv->init($size, $delta);
        play("$kind push $size", sub { $kv->push($size, $delta) for 1 .. $_[0] });
        play("$kind pull $size", sub { $kv->pull($size, out => $out) for 1 .. $_[0] });
    }
    $mxnet->init($size, $gradient);
    play("AI::MXNet push $size", sub { $mxnet->push($size, $gradient) for 1 .. $_[0] });
    play("AI::MXNet pull $size", sub { $mxnet->pull($size, out => $weights) for 1 .. $_[0] });
}
Syncline::shutdown();
