# What no caller should pass: every call dies with an error of ours, and the interpreter lives.
use strict;
use warnings;
use Test::More;
use Scalar::Util qw(blessed);
use PDL;
use AI::MXNet qw(mx);
use Syncline;
use Syncline::KVStore;

my $seed = $ENV{SEED} // 7;
srand $seed;
diag("SEED=$seed") if $ENV{SEED};
# Values of kinds that nobody expects there.
my $closed = Syncline::KVStore->create;
$closed->init('k', zeroes(float, 3));
$closed->close;
my $deep = [];
$deep = [$deep] for 1 .. 50;
my @strange = (
    sub { undef }, sub { '' }, sub { 0 }, sub { -1 }, sub { 1e300 }, sub { 9**9**9 }, sub { -9**9**9 }, sub { 'nan' + 0 }, sub { 2**63 }, sub { -2**63 }, sub { 999_999_999_999 }, sub { [999_999, 999_999] }, sub { 1.5 },
    sub { 'text' }, sub { "zero\0byte" }, sub { "\x{263a}" }, sub { "\xff\xfe" }, sub { 'x' x 100_000 }, sub { [] }, sub { [[]] }, sub { [undef] }, sub { [1, 'two'] },
    sub { $deep }, sub { {} }, sub { { type => undef } }, sub { \1 }, sub { sub { } }, sub { qr/x/ }, sub { \*STDOUT }, sub { bless {}, 'Nobody' }, sub { bless [], 'PDL::Nobody' },
    sub { PDL->null }, sub { zeroes(float, 0) }, sub { zeroes(float, 3) }, sub { zeroes(double, 3) }, sub { zeroes(byte, 1) }, sub { sequence(float, 3, 2) }, sub { pdl(5) },
    sub { zeroes(float, 9)->slice('0:2') }, sub { zeroes(float, 1)->dummy(0, 3) }, sub { zeroes(float, 3)->transpose }, sub { PDL->new(1)->convert(PDL::ushort()) },
    sub { mx->nd->ones([3]) }, sub { mx->nd->ones([2, 2])->tostype('row_sparse') }, sub { mx->cpu }, sub { mx->gpu(3) }, sub { mx->optimizer->SGD },
    sub { Syncline::RowSparse->zeros([3, 2]) }, sub { $closed }, sub { mx->kv->create }, sub { 'Syncline::KVStore' }, sub { *STDERR{IO} }, sub { ('a', 'b', 'c') }, sub { () },
);
sub anything { my $what = $strange[rand @strange]; return $what->() }
my @names = qw(out priority ignore_sparse row_ids dtype ctx sync timeout updater name staleness learning_rate int_keys dump_optimizer nonsense);

# tried(CODE): whether it lived, or died with what we promise.
my ($lived, $refused, @wrong) = (0, 0);
sub tried {
    my ($name, $code) = @_;
    local $SIG{__WARN__} = sub { };
    return $lived++ if eval { $code->(); 1 };
    my $error = $@;
    return $refused++ if blessed $error && $error->isa('Syncline::Error') && $error->kind ne 'Bug';
    push @wrong, "$name: $error";
}

my $kv = Syncline::KVStore->create;
$kv->init('k', zeroes(float, 3));
my $mx = mx->kv->create('device');
$mx->init('k', mx->nd->zeros([3]));
Syncline::init(timeout => 5);
my $array = Syncline::ArrayTable->new(3);
my $matrix = Syncline::MatrixTable->new(3, 2);
my $optimizer = mx->optimizer->SGD;
my $rounds = $ENV{ROUNDS} // 400;

my %objects = (
    'Syncline::KVStore' => [$kv, qw(init push pull pushpull broadcast row_sparse_pull set_optimizer set_updater set_gradient_compression save_optimizer_states load_optimizer_states set_learning_rate
        send_command_to_servers is_capable type rank num_workers num_dead_node barrier keys)],
    'a closed store' => [$closed, qw(init push pull pushpull broadcast row_sparse_pull set_optimizer set_updater set_gradient_compression set_learning_rate type rank barrier close)],
    'AI::MXNet::KVStore' => [$mx, qw(init push pull pushpull broadcast row_sparse_pull set_optimizer _set_updater set_gradient_compression load_optimizer_states _send_command_to_servers _barrier type rank)],
    'a class' => ['Syncline::KVStore', qw(create new)],
    'mx->kv' => ['AI::MXNet::KVStore', qw(create)],
    'mx->nd' => ['AI::MXNet::NDArray', qw(ones zeros full array empty)],
    'mx->nd->sparse' => ['AI::MXNet::NDArray::Sparse', qw(zeros row_sparse_array)],
    'an array' => [mx->nd->ones([3]), qw(copyto as_in_context astype reshape tostype set asscalar aspdl)],
    'mx->optimizer' => ['AI::MXNet::Optimizer', qw(create SGD Adam)],
    'mx->lr_scheduler' => ['AI::MXNet::LRScheduler', qw(FactorScheduler MultiFactorScheduler)],
    'an optimizer' => [$optimizer, qw(set get lr wd momentum set_lr_mult)],
    'rows' => ['Syncline::RowSparse', qw(new zeros from_dense)],
    'mx' => ['mx', qw(cpu gpu)],
    'an array table' => [$array, qw(get add add_get)],
    'a matrix table' => [$matrix, qw(get add add_get)],
    'tables' => ['Syncline::ArrayTable', qw(new)],
);
for my $what (sort keys %objects) {
    my ($object, @methods) = @{ $objects{$what} };
    for my $method (@methods) {
        my $few = $rounds / ($method =~ /new|create|barrier/ ? 10 : 1);
        for (1 .. $few) {
            my @arguments = map { anything() } 1 .. rand 4;
            push @arguments, 'k', anything() if rand() < 0.3;
            unshift @arguments, 'k' if rand() < 0.4;
            push @arguments, map { ($names[rand @names], scalar anything()) } 1 .. rand 3;
            # Files of any name would be written otherwise.
            @arguments = ('/nowhere/at/all', @arguments[1 .. $#arguments]) if $method eq 'save_optimizer_states';
            tried("$what->$method", sub { $object->$method(@arguments) });
        }
    }
}
for my $name (qw(init barrier rank aggregate all_reduce save load worker_id)) {
    my $function = Syncline->can($name);
    for (1 .. 30) { my @arguments = map { anything() } 1 .. rand 3; @arguments = ('/nowhere/at/all') if $name eq 'save'; tried("Syncline::$name", sub { $function->(@arguments) }) }
}
is_deeply(\@wrong, [], "calls with anything: $lived lived, $refused were refused, none died otherwise") or diag(join "\n", splice @wrong, 0, 20);
cmp_ok($refused, '>', 1000, 'most of it is refused');

# More than memory holds: Perl itself would end the program.
{
    my $rows = Syncline::RowSparse->zeros([999_999, 999_999]);
    my $table = Syncline::ArrayTable->new(2**38);    # takes no memory until it is used
    for my $call (
        sub { mx->nd->ones([999_999, 999_999]) }, sub { mx->nd->zeros([2**39]) }, sub { mx->nd->full(2**39, 1, dtype => 'float64') }, sub { mx->nd->ones([2**31, 100]) },
        sub { mx->nd->sparse->zeros('row_sparse', [999_999, 999_999])->aspdl }, sub { $rows->to_dense }, sub { $table->get },
    ) {
        my $lived = eval { $call->(); 1 };
        like($lived ? 'it lived' : "$@", qr/does not fit into memory at .*arguments\.t line/, 'what does not fit into memory is refused');
    }
}

# Handles that are none.
for my $handle (undef, 0, 1, 12345, 2**40, 2**63, $kv->{handle} + 1, $array->{handle}) {
    my $fake = bless { handle => $handle, keys => {}, specs => {}, pid => 0 }, 'Syncline::KVStore';
    is(eval { $fake->push('k', zeroes(float, 3)); 1 }, undef, 'a handle that is none');
    is(eval { $fake->barrier; 1 }, undef, 'for any call');
}
{
    my $still = Syncline::KVStore->create;
    $still->init('k', ones(float, 3));
    $still->push('k', ones(float, 3) * 2);
    is($still->pull('k')->sum, 6, 'and everything still works');
}
is(eval { $closed->push('k', zeroes(float, 3)); 1 }, undef, 'a closed store');
isa_ok($@, 'Syncline::Error::ArgumentError');
Syncline::shutdown();
is(eval { $array->get; 1 }, undef, 'a table after its session');
isa_ok($@, 'Syncline::Error::Closed');
done_testing;
