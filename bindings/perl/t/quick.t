# The short way of the most frequent calls answers as the long one does, and knows where it must not be taken.
use strict;
use warnings;
use Test::More;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use PDL;
use AI::MXNet qw(mx);
use Syncline;
use Syncline::KVStore;
use Syncline::Quick ();

my $here = abs_path(dirname(__FILE__));
my @perl = ($^X, map { "-I$_" } grep { !ref && /\b(?:blib|lib)\b/ } @INC);

# Everything that other tests show of calls, they show of the long way too.
for my $test (qw(checklist mxnet_numbers ndarray)) {
    local $ENV{SYNCLINE_QUICK} = 0;
    my $said = qx(@perl $here/$test.t 2>&1);
    ok($? == 0 && $said !~ /^not ok/m, "$test without the short way") or diag($said);
}
SKIP: {
    skip 'Syncline::Quick was not compiled: there is no compiler, or no header of PDL', 1 unless $Syncline::Quick::THERE;
    is(join(' ', map { ref } Syncline::KVStore->can('push'), Syncline::ArrayTable->can('get')), 'CODE CODE', 'it is there');
}

Syncline::init();
my $table = Syncline::ArrayTable->new(5, sequence(float, 5));
my $matrix = Syncline::MatrixTable->new(3, 2, sequence(float, 2, 3));
my $kv = Syncline::KVStore->create;
$kv->init('w', sequence(float, 5));
$kv->init('m', sequence(float, 2, 3));

subtest 'new arrays are new' => sub {
    for my $get (sub { $table->get }, sub { $kv->pull('w') }) {
        my ($one, $other) = ($get->(), $get->());
        $one .= 100;
        is("$other", '[0 1 2 3 4]', 'nobody else has its memory');
        is($other->type, 'float', 'its type');
    }
    is_deeply([$matrix->get->dims], [2, 3], 'a matrix');
    is_deeply([$kv->pull('m')->dims], [2, 3], 'a key of two dimensions');
};
subtest 'a new array is one of PDL\'s in all that is done with it' => sub {
    my $large = Syncline::ArrayTable->new(40_000, sequence(float, 40_000));
    my $got = $large->get;
    is(length ${ $got->get_dataref }, 160_000, 'its bytes are there');
    is($got->slice('-1:0:-1')->at(0), 39_999, 'it is sliced');
    is(($got * 2)->at(39_999), 79_998, 'it is computed with');
    is($got->copy->sumover, $large->get->sumover, 'it is copied');
    $got->inplace->sqrt;
    is($got->at(4), 2, 'it is changed where it lies');
    $got->reshape(50_000);
    is($got->slice('40000:-1')->abs->max, 0, 'what it grows by is zero');
    is($got->at(9), 3, 'and the rest as it was');
    $got->reshape(2);
    is("$got", '[0 1]', 'it shrinks to what PDL keeps inside of it');
    my $double = Syncline::ArrayTable->new(3, pdl(1.5, 2.5, 3.5), dtype => 'float64');
    is_deeply([$double->get->list], [1.5, 2.5, 3.5], 'another type');
};
subtest 'slices that were looked at before see what was written since' => sub {
    my %calls = (
        'table get' => sub { $table->get(out => $_[0]) }, 'table add_get' => sub { $table->add_get(zeroes(float, 5), out => $_[0]) }, 'pull' => sub { $kv->pull('w', out => $_[0]) },
        'pushpull' => sub { $kv->pushpull('w', sequence(float, 5), out => $_[0]) }, 'aggregate' => sub { $_[0] .= sequence(float, 5); Syncline::aggregate($_[0], 'max') },
        'all_reduce' => sub { $_[0] .= sequence(float, 5); scalar Syncline::all_reduce($_[0]) },
    );
    for my $call (sort keys %calls) {
        my $whole = zeroes(float, 5);
        my $part = $whole->slice('2:4');
        is($part->sum, 0, "$call: looked at before");
        $calls{$call}->($whole);
        is("@{[$part->list]}, @{[$part->sum]}", '2 3 4, 9', "$call: and after");
        is("$whole", '[0 1 2 3 4]', "$call: the array itself");
    }
};
subtest 'arrays that are not as they were made' => sub {
    my $board = zeroes(float, 10);
    my $slice = $board->slice('2:6');
    is(refaddr_of($table->get(out => $slice)), refaddr_of($slice), 'a slice is returned');
    is("$board", '[0 0 0 1 2 3 4 0 0 0]', 'and what it is a slice of is written');
    my $whole = zeroes(float, 5);
    my $part = $whole->slice('3:4');
    $table->get(out => $whole);
    is("$part", '[3 4]', 'a slice of the output sees it');
    $kv->pull('w', out => $whole->slice('-1:0'));
    is("$whole", '[4 3 2 1 0]', 'backwards');
    $table->add(zeroes(double, 5));
    is($table->get->sum, 10, 'another type is converted');
    for my $wrong (zeroes(float, 4), zeroes(double, 5), 'text', undef, [1, 2], PDL->null) {
        is(eval { $table->get(out => $wrong); 1 } ? ref $table->get(out => $wrong) : 'refused', defined $wrong ? 'refused' : 'PDL', 'another array as output');
        is(eval { $kv->pull('w', out => $wrong); 1 } ? 'taken' : 'refused', defined $wrong ? 'refused' : 'taken', 'of a key');
    }
    is(eval { $kv->push('m', sequence(float, 3, 2)); 1 }, undef, 'as many numbers in another shape');
    is(eval { $kv->push('m', mx->nd->ones([3, 2])); 1 }, undef, 'an array in costume');
    my $mx = mx->kv->create;
    $mx->init('k', mx->nd->ones([5]));
    is(eval { $mx->push('k', sequence(float, 5)); 1 }, undef, 'one without costume, where they have one');
    is($mx->push('k', mx->nd->ones([5]) * 3), undef, 'one in costume');
    my $out = mx->nd->zeros([5]);
    is($mx->pull('k', out => $out), undef, 'is filled');
    is($out->aspdl->sum, 15, 'with what was pushed');
};
subtest 'functions of the user inside of a push' => sub {
    my $store = Syncline::KVStore->create;
    $store->init('k', zeroes(float, 3));
    my @stack;
    my $add = sub { my ($key, $received, $stored) = @_; @stack = map { "$_" } 1 .. 5000; $stored += $received };    # Perl's stack moves
    $store->set_updater($add);
    $store->push('k', ones(float, 3)) for 1 .. 50;
    is($store->pull('k')->sum, 150, 'each push ran it');
    $store->set_updater(sub { die { code => 7 } });
    is(eval { $store->push('k', ones(float, 3)); 1 }, undef, 'what it dies with');
    is(ref $@ eq 'HASH' && $@->{code}, 7, 'comes out as it was');
    my $mx = mx->kv->create;
    $mx->init('k', mx->nd->ones([3]));
    $mx->_set_updater(sub { die "no\n" });
    is(eval { $mx->push('k', mx->nd->ones([3])); 1 }, undef, 'in costume');
    is($@, "no\n", 'too');
};
subtest 'in the background' => sub {
    my $store = Syncline::KVStore->create('dist_async');
    $store->init($_, zeroes(float, 5)) for 'a' .. 'e';
    $store->set_optimizer('test');
    my $gradient = ones(float, 5);
    my $priority = 0;
    for my $round (1 .. 20) { $store->push($_, $gradient, priority => --$priority, wait => 0) for 'a' .. 'e' }
    $gradient .= 77;
    is($store->pull($_)->at(0), 20, 'a pull waits for the pushes of its key, which had copies') for 'a' .. 'e';
    $store->push('a', ones(float, 5), wait => 0) for 1 .. 5;
    is($store->flush, undef, 'flush waits for all');
    is(eval { $store->push('nobody', $gradient, wait => 0); 1 }, undef, 'an unknown key is refused at once');
    is(eval { $store->push('a', $gradient, priority => 2**40, wait => 0); 1 }, undef, 'a priority beyond all numbers');
    my $thread = Syncline::KVStore->create;
    $thread->init('k', zeroes(float, 2));
    my $ran = 0;
    $thread->push('k', ones(float, 2), wait => 0);
    $thread->set_updater(sub { $ran++; $_[2] += $_[1] });
    $thread->push('k', ones(float, 2), wait => 0, priority => 3);
    is($ran, 1, 'an updater in Perl runs in this thread, before the push returns');
    is($thread->pull('k')->sum, 4, 'and for its own pushes only');
};
# Every update of any key lowers the rate, so what a key has moved by tells how many came before it. Large pushes keep the background busy until all are queued; should it
# be done with them too early, on a machine that stands still between two lines, the late key may go first, and it is tried again. First come, first served never has the first of the two answers.
subtest 'the most urgent first' => sub {
    # FTML, since an update takes several times as long as queueing it.
    my $rule = sub { mx->optimizer->FTML(learning_rate => 1, lr_scheduler => mx->lr_scheduler->FactorScheduler(step => 1, factor => 0.5)) };
    my $rate_after = sub {
        my ($updates) = @_;
        my $store = mx->kv->create;
        $store->init($_, mx->nd->zeros([5])) for 'many', 'one';
        $store->set_optimizer($rule->());
        $store->push('many', mx->nd->ones([5])) for 1 .. $updates;
        $store->push('one', mx->nd->ones([5]));
        $store->pull('one', out => my $one = mx->nd->zeros([5]));
        return $one->aspdl->at(0);
    };
    my ($first, $last) = map { $rate_after->($_) } 0, 10;
    isnt($first, $last, 'the order can be seen');
    my @large = map { "large$_" } 1 .. 6;
    for my $costume (0, 1) {
        my ($seen, $flipped);
        for my $order ([-1, 5], [5, -1]) {
            my ($one_is, $many_are) = @$order;
            for my $try (1 .. 5) {
                my $store = $costume ? mx->kv->create : Syncline::KVStore->create;
                my $ones = sub { my $array = ones(float, @_); $costume ? mx->nd->array($array) : $array };
                my @how = $costume ? () : (wait => 0);
                my ($big, $small) = ($ones->(1 << 20), $ones->(5));
                $store->init($_, $big) for @large;
                $store->init($_, $ones->(5) * 0) for 'many', 'one';
                $store->set_optimizer($rule->());
                $store->push($_, $big, priority => 9, @how) for @large;
                my @calls = ((map { ['many', $many_are] } 1 .. 10), ['one', $one_is]);
                @calls = reverse @calls if $one_is < $many_are; # whoever has to go first comes last
                $store->push($_->[0], $small, priority => $_->[1], @how) for @calls;
                $store->pull('one', out => my $one = $ones->(5));
                my $moved = ($costume ? $one->aspdl : $one)->at(0);
                if ($one_is < $many_are) { $seen = $moved; last if $moved == $last }
                else { $flipped = $moved; last if $moved == $first }
            }
        }
        my $who = $costume ? 'AI::MXNet' : 'Syncline::KVStore';
        is($seen, $last, "$who: queued first and least urgent, it comes after all others");
        is($flipped, $first, "$who: queued last and most urgent, it comes before them");
    }
};
subtest 'objects that are gone' => sub {
    my $store = Syncline::KVStore->create;
    $store->init('k', zeroes(float, 3));
    $store->close;
    for my $call (sub { $store->push('k', ones(float, 3)) }, sub { $store->pull('k') }, sub { $store->pull('k', out => zeroes(float, 3)) }) {
        is(eval { $call->(); 1 }, undef, 'a closed store');
        isa_ok($@, 'Syncline::Error::ArgumentError');
        like("$@", qr/quick\.t line \d+/, "the caller's line");
    }
    Syncline::shutdown();
    for my $call (sub { $table->add(ones(float, 5)) }, sub { $table->get }, sub { $table->get(out => zeroes(float, 5)) }, sub { $matrix->get }) {
        is(eval { $call->(); 1 }, undef, 'a table after its session');
        isa_ok($@, 'Syncline::Error::Closed');
    }
};

sub refaddr_of { return Scalar::Util::refaddr($_[0]) }
done_testing;
