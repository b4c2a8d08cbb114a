package Syncline::RowSparse;

# An array of which only some rows are there.

use strict;
use warnings;

use PDL::Lite ();
use Scalar::Util qw(blessed);
use Syncline::Array ();
use Syncline::Error ();
use Syncline::FFI ();

our $VERSION = '0.1.0';

# new(INDICES, VALUES, SHAPE): ids in any order, one row of values for each.
sub new {
    my ($class, $indices, $values, $shape, @options) = @_;
    my %options = settings(@options);
    Syncline::Error::argument('a row-sparse array needs a shape with at least one extent')
        unless ref $shape eq 'ARRAY' && @$shape && !grep { !defined || !/\A[0-9]{1,18}\z/ } @$shape;
    my $dtype = $options{dtype};
    my $ids = Syncline::Array::ids($indices, 'indices');
    my $rows;
    if (ref $values eq 'ARRAY' && !@$values) { $rows = Syncline::Array::fresh($dtype // 'float32', [0]) }
    else { $rows = Syncline::Array::whole($values, 'values') }
    $rows = $rows->convert(Syncline::Array::type_of($dtype)) if defined $dtype;
    my $self = bless { shape => [@$shape], dtype => Syncline::Array::dtype_of($rows) }, $class;
    # The library sorts, adds up rows that stand twice, and refuses what does not fit.
    my $made = $self->lent_of($ids, $rows);
    $self->take($made);
    return $self;
}

sub settings {
    my (@given) = @_;
    Syncline::Error::argument('a row-sparse array: options come in pairs, name => value') if @given % 2;
    my %options = @given;
    for my $option (sort keys %options) {
        Syncline::Error::argument("a row-sparse array has no option $option; it has dtype") unless $option eq 'dtype';
    }
    return %options;
}

# zeros(SHAPE, DTYPE): an array without any row.
sub zeros {
    my ($class, $shape, @options) = @_;
    my %options = settings(@options);
    return $class->new([], [], $shape, dtype => $options{dtype} // 'float32');
}

# from_dense(PDL): the rows that are not all zero.
sub from_dense {
    my ($class, $pdl) = @_;
    $pdl = Syncline::Array::whole($pdl, 'an array');
    my @dims = $pdl->dims;
    Syncline::Error::argument('a scalar has no rows') unless @dims;
    my $width = 1;
    $width *= $_ for @dims[0 .. $#dims - 1];
    my $rows = $pdl->copy->reshape($width, $dims[-1]);
    my $ids = $width ? ($rows != 0)->orover->which : PDL->zeroes(PDL::indx(), 0);
    my $values = $ids->isempty ? [] : $rows->dice_axis(1, $ids)->copy;
    return $class->new($ids, $values, Syncline::Array::shape_of($pdl), dtype => Syncline::Array::dtype_of($pdl));
}

sub indices { $_[0]{indices} }
sub values  { $_[0]{values} }
sub shape   { [@{ $_[0]{shape} }] }
sub dtype   { $_[0]{dtype} }

# All rows, absent ones as zeros.
sub to_dense {
    my ($self) = @_;
    my $dense = Syncline::Array::fresh($self->{dtype}, $self->{shape});
    return $dense if $self->{indices}->isempty || $dense->isempty;
    my $rows = $dense->dummy(0)->clump($dense->ndims)->sever;    # (width, rows)
    $rows->dice_axis(1, $self->{indices}) .= $self->{values}->copy->reshape($rows->dim(0), $self->{indices}->nelem);
    return $rows->reshape(reverse @{ $self->{shape} });
}

sub is { my ($given) = @_; return blessed $given && $given->isa(__PACKAGE__) }

# A handle of the library's with these rows. Freed by whoever gets it.
sub lent { my ($self) = @_; return $self->lent_of($self->{indices}, $self->{values}) }

sub lent_of {
    my ($self, $ids, $rows) = @_;
    my @dims = @{ $self->{shape} };
    my $handle;
    my ($id_data, $row_data) = ($ids->get_dataref, $rows->get_dataref);
    my $status = Syncline::FFI::rows_create($Syncline::FFI::DTYPE{ $self->{dtype} }, pack('Q*', @dims), scalar @dims,
        $$id_data, $ids->nelem, $$row_data, $rows->nelem, \$handle);
    Syncline::FFI::failed($status) if $status;
    return bless { handle => $handle }, 'Syncline::RowSparse::Lent';
}

# Takes over what a handle holds now.
sub take {
    my ($self, $lent) = @_;
    my ($rows, $count);
    my $status = Syncline::FFI::rows_count($lent->{handle}, \$rows, \$count);
    Syncline::FFI::failed($status) if $status;
    my (undef, @width) = @{ $self->{shape} };
    my $ids = Syncline::Array::fresh('int64', [$rows]);
    my $values = Syncline::Array::fresh($self->{dtype}, [$rows, @width]);
    my ($id_data, $value_data) = ($ids->get_dataref, $values->get_dataref);
    $status = Syncline::FFI::rows_read($lent->{handle}, $$id_data, $rows, $$value_data, $count);
    Syncline::FFI::failed($status) if $status;
    $_->upd_data for $ids, $values;
    @$self{qw(indices values)} = ($ids, $values);
    return $self;
}

sub Syncline::RowSparse::Lent::DESTROY { my ($self) = @_; Syncline::FFI::rows_free($self->{handle}) if $self->{handle} }

1;

__END__

=head1 NAME

Syncline::RowSparse - an array of which only some rows are there

=head1 SYNOPSIS

    my $gradient = Syncline::RowSparse->new([7, 3], pdl(float, [[1, 1], [2, 2]]), [1000, 2]);
    print $gradient->indices;     # [3 7]
    $kv->push('vectors', $gradient);

=head1 DESCRIPTION

Ids are sorted and stand once each; rows of an id that was given twice are added. Absent rows are zeros.

=head1 METHODS

=over

=item new(indices, values, shape, dtype => ...)

Ids in any order, one row of values for each, and the shape of the whole array, rows first.

=item zeros(shape, dtype => 'float32')

No row at all; a pull fills it.

=item from_dense(pdl)

The rows of an array that are not all zero. A PDL of dimensions C<(4, 3)> has three rows of four numbers.

=item indices, values, shape, dtype

A PDL of C<longlong>, a PDL with one row for each of them, the shape of the whole, and the dtype's name.

=item to_dense

All rows, as a PDL.

=back

=cut
