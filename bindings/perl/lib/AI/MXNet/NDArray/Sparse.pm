package AI::MXNet::NDArray::Sparse;

# Row-sparse arrays as programs of MXNet write them, over Syncline::RowSparse.

use strict;
use warnings;

use Syncline::Array ();
use Syncline::Error ();
use Syncline::RowSparse ();

our $VERSION = '0.1.0';

# zeros('row_sparse', SHAPE): an array without any row.
sub zeros {
    my (undef, $stype, $shape, @rest) = @_;
    Syncline::Error::argument('storage ' . Syncline::Array::shown($stype) . ' is not row_sparse') unless defined $stype && !ref $stype && $stype eq 'row_sparse';
    my ($ctx, $dtype, $given) = AI::MXNet::NDArray::settings(@rest);
    Syncline::Error::argument("storage row_sparse, and stype => '$given'") if { @rest % 2 ? (ctx => @rest) : @rest }->{stype} && $given ne 'row_sparse';
    my $rows = Syncline::RowSparse->zeros(AI::MXNet::NDArray::checked_shape($shape), dtype => $dtype // 'float32');
    return AI::MXNet::NDArray::RowSparse->around($rows, $ctx);
}

# row_sparse_array([DATA, INDICES], shape => SHAPE)
sub row_sparse_array {
    my (undef, $parts, @rest) = @_;
    Syncline::Error::argument('row_sparse_array: options come in pairs, name => value') if @rest % 2;
    my %options = @rest;
    my $shape = delete $options{shape};
    my ($ctx, $dtype) = AI::MXNet::NDArray::settings(%options);
    if (AI::MXNet::NDArray::is($parts)) {
        Syncline::Error::argument('row_sparse_array of an array takes its shape, context and dtype') if defined $shape || %options;
        return AI::MXNet::NDArray::RowSparse->from($parts);
    }
    Syncline::Error::argument('row_sparse_array takes [data, indices], and shape =>') unless ref $parts eq 'ARRAY' && @$parts == 2 && defined $shape;
    my ($data, $indices) = map { AI::MXNet::NDArray::is($_) ? $_->dense : $_ } @$parts;
    my $rows = Syncline::RowSparse->new($indices, $data, AI::MXNet::NDArray::checked_shape($shape), dtype => $dtype // 'float32');
    return AI::MXNet::NDArray::RowSparse->around($rows, $ctx);
}

package AI::MXNet::NDArray::RowSparse;

our @ISA = ('AI::MXNet::NDArray');

sub around {
    my ($class, $rows, $ctx) = @_;
    return bless { rows => $rows, ctx => $ctx // AI::MXNet::Context->current_ctx, dtype => $rows->dtype }, $class;
}

# from(DENSE): its rows that are not all zero.
sub from {
    my ($class, $array) = @_;
    return $class->around(Syncline::RowSparse->from_dense($array->dense), $array->ctx);
}

sub shape   { $_[0]{rows}->shape }
sub stype   { 'row_sparse' }
sub stored  { $_[0]{rows} }
sub dense   { $_[0]{rows}->to_dense }
sub aspdl   { $_[0]->dense }
sub indices { my ($self) = @_; return AI::MXNet::NDArray->of($self->{rows}->indices->copy, $self->{ctx}) }
sub data    { my ($self) = @_; return AI::MXNet::NDArray->of($self->{rows}->values->copy, $self->{ctx}) }
sub copy    { my ($self) = @_; return ref($self)->around(Syncline::RowSparse->new($self->{rows}->indices, $self->{rows}->values, $self->shape, dtype => $self->{dtype}), $self->{ctx}) }

sub tostype {
    my ($self, $stype) = @_;
    return defined $stype && !ref $stype && $stype eq 'row_sparse' ? $self->copy : $self->SUPER::tostype($stype);
}

# set(VALUE): makes these the rows.
sub set {
    my ($self, $value) = @_;
    my $numbers = $self->operand($value);
    my $whole = Syncline::Array::fresh($self->{dtype}, $self->shape);
    $whole .= $numbers unless $whole->isempty;
    $self->{rows} = Syncline::RowSparse->from_dense($whole);
    return $self;
}

1;

__END__

=head1 NAME

AI::MXNet::NDArray::Sparse - row-sparse arrays in MXNet's manner

=head1 SYNOPSIS

    my $rows = mx->nd->sparse->zeros('row_sparse', [4, 2]);
    my $more = mx->nd->sparse->row_sparse_array([[[1, 1], [2, 2]], [3, 0]], shape => [4, 2]);
    print $more->indices->aspdl, $more->data->aspdl, $more->tostype('default')->aspdl;

=head1 DESCRIPTION

C<mx-E<gt>nd-E<gt>sparse>: C<zeros('row_sparse', $shape)> and C<row_sparse_array([$data, $indices], shape =E<gt> $shape)>, both with C<ctx> and C<dtype>. The arrays have the methods of L<AI::MXNet::NDArray>, C<indices> and C<data>; arithmetic with them gives dense arrays.

=cut
