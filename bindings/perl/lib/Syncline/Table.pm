package Syncline::Table;

# Arrays and matrices that all workers read and add to.

use strict;
use warnings;
no warnings qw(uninitialized);    # a signal handler that dies during a call is reported as one, at our line

use Scalar::Util qw(looks_like_number);
use Syncline::Array ();
use Syncline::Error ();
use Syncline::FFI ();
use Syncline::Quick ();

our $VERSION = '0.1.0';

my @NUMBERS = qw(learning_rate momentum rho lambda);

# What the calls take beside their arrays: a matrix also rows. An option that a call does not have is refused, not overlooked.
our @GET = qw(out);
our @ADD = (qw(sync), @NUMBERS, 'lambda_');

sub make {
    my ($class, $shape, $initial, %options) = @_;
    for my $extent (@$shape) {
        Syncline::Error::argument('an extent is ' . Syncline::Array::shown($extent) . ', and must be a whole number, 0 or more')
            unless defined $extent && !ref $extent && $extent =~ /\A[0-9]{1,18}\z/;
    }
    my %known = map { $_ => 1 } qw(dtype updater name staleness);
    for my $option (sort keys %options) {
        Syncline::Error::argument("a table has no option $option; it has dtype, updater, name, staleness") unless $known{$option};
    }
    my $dtype = $options{dtype} // 'float32';
    my $type = Syncline::Array::type_of($dtype);
    my $bounded = defined $options{staleness} ? 1 : 0;
    my $staleness = $options{staleness} // 0;
    Syncline::Error::argument('staleness is ' . Syncline::Array::shown($staleness) . ', and must be a whole number, 0 or more') unless $staleness =~ /\A[0-9]{1,9}\z/;
    my ($updater, $name) = map { defined $_ ? Syncline::path($_) : undef } @options{qw(updater name)};
    my ($data, $count) = (undef, 0);
    if (defined $initial) {
        my $array = Syncline::Array::whole($initial, 'the initial value');
        $array = Syncline::Array::held_as($array, $type, 'the initial value');
        ($data, $count) = ($array->get_dataref, $array->nelem);
    }
    my $described = pack 'llLx4pp', $Syncline::FFI::DTYPE{$dtype}, $bounded, $staleness, $updater, $name;
    my $session = Syncline::session();
    Syncline::here();
    my $handle;
    my $status = @$shape == 1
        ? Syncline::FFI::array_create($session, @$shape, $described, $data ? $$data : undef, $count, \$handle)
        : Syncline::FFI::matrix_create($session, @$shape, $described, $data ? $$data : undef, $count, \$handle);
    Syncline::FFI::failed($status) if $status;
    my $self = bless { handle => $handle, shape => [@$shape], dtype => $dtype, type => $type, enum => $type->enum, pid => $$ }, $class;
    return Syncline::Quick::table($self, $handle, $type->enum, reverse @$shape);
}

sub DESTROY {
    my ($self) = @_;
    return if ${^GLOBAL_PHASE} eq 'DESTRUCT' || !defined $self->{handle} || $self->{pid} != $$;
    local ($@, $?);
    Syncline::FFI::table_free(delete $self->{handle});
}

sub CLONE_SKIP { 1 }

sub shape { [@{ $_[0]{shape} }] }
sub dtype { $_[0]{dtype} }

sub name {
    my ($self) = @_;
    my $name = Syncline::FFI::room(256);
    my $status = Syncline::FFI::table_name($self->{handle}, $name, 256);
    Syncline::FFI::failed($status) if $status;
    return Syncline::FFI::text($name);
}

# The numbers of an add: an array of the table's dtype.
sub numbers {
    my ($self, $given) = @_;
    my $array = Syncline::Array::whole($given, 'the delta');
    return $array->get_datatype == $self->{enum} ? $array : Syncline::Array::held_as($array, $self->{type}, 'the delta');
}

sub room_for {
    my ($self, $out, $shape) = @_;
    return Syncline::Array::fresh($self->{dtype}, $shape) unless defined $out;
    Syncline::Array::to_write($out, 'out');
    Syncline::Error::raise('ShapeMismatch', 'out is ' . Syncline::Array::dtype_of($out) . ", the table is $self->{dtype}") if $out->get_datatype != $self->{enum};
    return $out;
}

# The structure syncline_add_options; undef where nothing was said.
sub add_options {
    my ($options) = @_;
    my ($given, @values) = (0);
    for my $place (0 .. $#NUMBERS) {
        my $value = $options->{ $NUMBERS[$place] } // ($NUMBERS[$place] eq 'lambda' ? $options->{lambda_} : undef);
        push @values, $value // 0;
        next unless defined $value;
        Syncline::Error::argument("$NUMBERS[$place] is " . Syncline::Array::shown($value) . ', and must be a number') unless looks_like_number($value);
        $given |= 1 << $place;
    }
    return $given ? pack('Lffff', $given, @values) : undef;
}

sub options_of {
    my ($call, $known, @rest) = @_;
    Syncline::Error::argument("$call: options come in pairs, name => value") if @rest % 2;
    my %options = @rest;
    my %known = map { $_ => 1 } @$known;
    for my $option (sort keys %options) {
        Syncline::Error::argument("$call has no option $option; it has " . join ', ', @$known) unless $known{$option};
    }
    return \%options;
}

sub get_whole {
    my ($self, $out) = @_;
    my $array = $self->room_for($out, $self->{shape});
    my ($written, $copied) = Syncline::Array::filling($array);
    my $data = $written->get_dataref;
    my $status = Syncline::FFI::table_get($self->{handle}, $$data, $written->nelem);
    Syncline::FFI::failed($status) if $status;
    return Syncline::Array::filled($array, $written, $copied);
}

sub add_whole {
    my ($self, $delta, $options) = @_;
    my $array = $self->numbers($delta);
    my $data = $array->get_dataref;
    my $status = Syncline::FFI::table_add($self->{handle}, $$data, $array->nelem, add_options($options), Syncline::Array::truth($options->{sync}));
    Syncline::FFI::failed($status) if $status;
    return;
}

# add_get(DELTA, out => ...): adds, and gets the table after it.
sub add_get {
    my ($self, $delta, @rest) = @_;
    my $options = options_of('add_get', ['out', @NUMBERS, 'lambda_'], @rest);
    my $array = $self->numbers($delta);
    my $out = $self->room_for($options->{out}, $self->{shape});
    # Where both are one array, what is added must not be written over.
    my ($written, $copied) = ($out->copy, 1);
    ($written, $copied) = ($out, 0) unless defined $options->{out};
    Syncline::Error::raise('ShapeMismatch', 'out has ' . $written->nelem . ' numbers, and the delta ' . $array->nelem) if $written->nelem != $array->nelem;
    my ($data, $result) = ($array->get_dataref, $written->get_dataref);
    my $status = Syncline::FFI::table_add_get($self->{handle}, $$data, $$result, $array->nelem, add_options($options));
    Syncline::FFI::failed($status) if $status;
    return Syncline::Array::filled($out, $written, $copied);
}

package Syncline::ArrayTable;

our @ISA = ('Syncline::Table');

sub new { my ($class, $size, $initial, @options) = @_; Syncline::Error::argument('a table: options come in pairs, name => value') if @options % 2; return $class->make([$size], $initial, @options) }

*get = Syncline::Quick::or_else(table_get => __PACKAGE__ . '::get_all');
*add = Syncline::Quick::or_else(table_add => __PACKAGE__ . '::add_all');

sub get_all { my ($self, @rest) = @_; return $self->get_whole(Syncline::Table::options_of('get', \@Syncline::Table::GET, @rest)->{out}) }
sub add_all { my ($self, $delta, @rest) = @_; return $self->add_whole($delta, Syncline::Table::options_of('add', \@Syncline::Table::ADD, @rest)) }

package Syncline::MatrixTable;

our @ISA = ('Syncline::Table');

sub new { my ($class, $rows, $cols, $initial, @options) = @_; Syncline::Error::argument('a table: options come in pairs, name => value') if @options % 2; return $class->make([$rows, $cols], $initial, @options) }

*get = Syncline::Quick::or_else(table_get => __PACKAGE__ . '::get_rows');
*add = Syncline::Quick::or_else(table_add => __PACKAGE__ . '::add_rows');

sub get_rows {
    my ($self, @rest) = @_;
    my $options = Syncline::Table::options_of('get', ['row_ids', @Syncline::Table::GET], @rest);
    return $self->get_whole($options->{out}) unless defined $options->{row_ids};
    my $ids = Syncline::Array::ids($options->{row_ids}, 'row_ids');
    my $out = $self->room_for($options->{out}, [$ids->nelem, $self->{shape}[1]]);
    my ($written, $copied) = Syncline::Array::filling($out);
    my ($id_data, $data) = ($ids->get_dataref, $written->get_dataref);
    my $status = Syncline::FFI::table_get_rows($self->{handle}, $$id_data, $ids->nelem, $$data, $written->nelem);
    Syncline::FFI::failed($status) if $status;
    return Syncline::Array::filled($out, $written, $copied);
}

sub add_rows {
    my ($self, $delta, @rest) = @_;
    my $options = Syncline::Table::options_of('add', ['row_ids', @Syncline::Table::ADD], @rest);
    return $self->add_whole($delta, $options) unless defined $options->{row_ids};
    my ($ids, $array) = (Syncline::Array::ids($options->{row_ids}, 'row_ids'), $self->numbers($delta));
    my ($id_data, $data) = ($ids->get_dataref, $array->get_dataref);
    my $status = Syncline::FFI::table_add_rows($self->{handle}, $$id_data, $ids->nelem, $$data, $array->nelem, Syncline::Table::add_options($options), Syncline::Array::truth($options->{sync}));
    Syncline::FFI::failed($status) if $status;
    return;
}

1;

__END__

=head1 NAME

Syncline::Table - Syncline::ArrayTable and Syncline::MatrixTable, arrays that all workers read and add to

=head1 SYNOPSIS

    my $weights = Syncline::ArrayTable->new(4, pdl(float, 1, 2, 3, 4));
    $weights->add(pdl(float, 1, 1, 1, 1), sync => 1);
    print $weights->get;

    my $rows = Syncline::MatrixTable->new(1000, 8, undef, dtype => 'float64', updater => 'sgd');
    $rows->add(ones(8, 2), row_ids => [3, 7]);
    print $rows->get(row_ids => [3]);

=head1 DESCRIPTION

Every worker makes the same tables in the same order; worker 0's initial value counts. A matrix of R rows and C columns is a PDL of dimensions C<(C, R)>.

=head1 METHODS

=over

=item Syncline::ArrayTable->new($size, $initial, %options), Syncline::MatrixTable->new($rows, $cols, $initial, %options)

Options: C<dtype> (C<float32>), C<updater> (C<add>, C<sgd>, C<momentum_sgd>, C<adagrad>, C<dcasgd>, C<dcasgda>), C<name>, C<staleness>.

=item get(out => $pdl, row_ids => [...])

This worker's own adds are always in it. Rows of a matrix in the order of their ids.

=item add($delta, sync => 0, row_ids => [...], learning_rate => ..., momentum => ..., rho => ..., lambda => ...)

Returns at once; with C<sync> when everybody's next get sees it.

=item add_get($delta, out => $pdl)

Adds, and gets the table after it.

=item shape, dtype, name

=back

=cut
