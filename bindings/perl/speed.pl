# What a call costs from Perl (sizes may be given): microseconds of processor time, the best of five turns. `cargo run --release -p syncline-c --example store_costs` says it of Rust.
# With IN_TURNS set, one short turn for each line `go` of its input, another call after any other line: see bindings/call-costs.
use strict;
use warnings;

use PDL;
use Syncline;
use Syncline::KVStore;
use Time::HiRes qw(clock_gettime CLOCK_PROCESS_CPUTIME_ID);

sub timed {
    my ($times, $call) = @_;
    my $began = clock_gettime(CLOCK_PROCESS_CPUTIME_ID);
    for (my $i = 0; $i < $times; $i++) { $call->() }
    return (clock_gettime(CLOCK_PROCESS_CPUTIME_ID) - $began) / $times * 1e6;
}

sub cost {
    my ($name, $times, $call) = @_;
    timed($times / 10 > 10 ? $times / 10 : 10, $call);
    if ($ENV{IN_TURNS}) {
        # A few milliseconds, large calls included: what it costs to wake up is then little.
        $times = $times > 1000 ? $times / 50 : $times / 2;
        local $| = 1;
        print "$name\n";
        while ((<STDIN> // '') eq "go\n") { printf "go %.3f\n", timed($times, $call) }
        return;
    }
    my $best = 9**9**9;
    for (1 .. 5) {
        my $took = timed($times, $call);
        $best = $took if $took < $best;
    }
    printf "%-36s %10.2f us\n", $name, $best;
}

cost('an empty function', 1_000_000, sub { }) unless $ENV{IN_TURNS};
my $local = Syncline::KVStore->create('local');
my $apart = Syncline::KVStore->create('dist_async');
$apart->set_optimizer('test');
for my $count (@ARGV ? @ARGV : (1, 16, 1024, 262_144, 4_194_304)) {
    my $times = $count <= 1024 ? 100_000 : $count <= 262_144 ? 500 : 20;
    my ($gradient, $out) = (ones(float, $count), zeroes(float, $count));
    for my $pair (['local', $local], ['dist_async', $apart]) {
        my ($name, $kv) = @$pair;
        $kv->init($count, $gradient);
        cost("$name push $count floats", $times, sub { $kv->push($count, $gradient) });
        cost("$name pull $count floats", $times, sub { $kv->pull($count, out => $out) });
    }
    my $table = Syncline::ArrayTable->new($count);
    cost("table add $count floats", $times, sub { $table->add($gradient) });
    cost("table get $count floats", $times, sub { $table->get(out => $out) });
}
